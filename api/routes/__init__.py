"""Routes of the service: one module for each resource, each with a `router` that the application includes."""
