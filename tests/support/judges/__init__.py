"""Readers and judges that share no code with the package."""
