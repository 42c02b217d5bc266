"""The user's ``kafka.*`` properties, in the words of each client that speaks to the cluster."""
