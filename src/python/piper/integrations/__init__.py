"""Models of other libraries."""
