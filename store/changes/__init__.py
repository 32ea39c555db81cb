"""Change the database: functions of a transaction that write rows and the event that reports them."""
