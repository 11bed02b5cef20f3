"""How far predictions lie from measurements that the fit never saw."""
