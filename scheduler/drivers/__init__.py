"""From a request to selections: the driver interface, filter_scheduler, its record."""
