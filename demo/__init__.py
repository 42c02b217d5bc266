"""The demo: flights → load → run → check, and the output. In the checkout only, not in the wheel."""
