"""Iteration times from operators measured one by one."""
