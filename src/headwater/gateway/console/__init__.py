"""The page: plain ES modules, served as they are."""
