"""Run child processes in jails, and test that the jails hold."""
