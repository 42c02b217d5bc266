"""The pages that are made from the code, one module each: errors, options."""
