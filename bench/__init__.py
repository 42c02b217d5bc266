"""The benchmark: load → queries → meter → result, one module for each mode. In the checkout only, not in the wheel."""
