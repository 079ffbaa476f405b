from protocol.line import RolloutLine


def upcast_line(line, data):
    return line
