"""What those who watch a scheduler are told, and when: the same of an engine and of its twin."""
