"""Write reports and exports."""
