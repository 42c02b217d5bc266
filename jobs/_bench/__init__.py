"""The rooms of ``jobs.benchmark``: load → queries → meter → result, one module for each mode."""
