"""The pages that are made from the code, one module each: api, errors, failpoints, keys, llms, options."""
