"""Offer acceld to coding agents as tools of the Model Context Protocol."""
