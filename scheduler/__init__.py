"""The scheduler: from a request to the hosts that its instances go to."""
