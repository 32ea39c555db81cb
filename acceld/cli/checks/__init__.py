"""Hold the parts of ``acceld check``: stored winners and files, a branch's changes, devices, versions of nki."""
