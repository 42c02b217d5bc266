"""The pages that are made from the code, one module each: api, keys, llms, options."""
