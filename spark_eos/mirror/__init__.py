"""Topics of one cluster on another one, exactly once: the direct way, with targets that are made and follow their
source, and a map from the source's offsets to the target's.
"""
