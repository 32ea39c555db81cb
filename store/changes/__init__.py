"""Change the database. Each function runs inside a transaction, and writes rows together with the event that
reports them.
"""
