"""Hold the devices that candidates run on, one folder for each."""
