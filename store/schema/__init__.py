"""Define the tables and views of the database, and the migrations from older schemas."""
