"""Graphs, streams, devices and trials that several tests share."""
