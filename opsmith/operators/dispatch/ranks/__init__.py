"""Sharding rules of operators on DTensors."""
