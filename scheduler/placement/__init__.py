"""All that is said to Placement: queries, candidates, claims."""
