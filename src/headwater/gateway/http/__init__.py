"""HTTP itself: what every request passes, how bodies are read and problems answered, the OpenAPI description."""
