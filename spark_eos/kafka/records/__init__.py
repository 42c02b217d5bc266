"""Record batches, in both directions."""
