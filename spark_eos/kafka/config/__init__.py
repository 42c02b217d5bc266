"""The user's ``kafka.*`` properties, translated for each client."""
