"""Any CNN, from the zoo, a file or a framework's object, as a layer table."""
