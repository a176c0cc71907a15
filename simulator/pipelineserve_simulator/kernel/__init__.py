"""Virtual time and chance: ticks, events in a total order, named random streams."""
