"""Parts of the protocol and of the logs in memory."""
