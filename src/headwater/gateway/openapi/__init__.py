"""The description of the HTTP interface, made from the declarations of its routes."""
