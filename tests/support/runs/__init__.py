"""How a run of the tests is dealt out, shortened and cleaned up."""
