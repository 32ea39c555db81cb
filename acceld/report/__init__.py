"""Write reports and exports, and read other projects' results."""
