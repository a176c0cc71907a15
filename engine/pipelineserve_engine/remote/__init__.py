"""Stages on other hosts: who may join, what they are told, what became of them."""
