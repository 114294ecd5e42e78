"""The languages that agents and endpoints speak, each to and from the one model of `messages`. No I/O."""
