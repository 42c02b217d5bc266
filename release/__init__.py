"""`make release`: builds what a release consists of, and checks it. It publishes nothing."""
