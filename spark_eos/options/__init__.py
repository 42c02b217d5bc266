"""Options of source and sink: what there is, how a user writes it, and the page made of them."""
