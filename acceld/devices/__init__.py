"""Devices that candidates run on, one folder each."""
