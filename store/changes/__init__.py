"""Changes: functions of a transaction, which write rows and the event that reports them."""
