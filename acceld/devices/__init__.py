"""Devices that candidates run on: one folder for each."""
