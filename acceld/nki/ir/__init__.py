"""Define the program that a traced kernel becomes: its operations, encoding and number formats, and who reads
and writes each buffer.
"""
