"""Hold the parts of ``acceld check``: stored winners and files, the changes of a branch, devices, versions of nki."""
