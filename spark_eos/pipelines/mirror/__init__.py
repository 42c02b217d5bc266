"""Topics of one cluster on another one, exactly once: a copy, with targets that are made and follow their
source, and a map from the source's offsets to the target's.
"""
