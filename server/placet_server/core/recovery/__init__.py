"""What stopped in between: found, judged by its effect class, and made ready, ambiguous or closed.

rescue      running actions of dead boots; unbegun: those of them that people have to say yes to
redrive     what was given up, tried again by an operator's will
reconcile   effects that may have happened, and asking somebody who knows
wish        asking now, because an operator wants to know
recover     all of it now, and a report; recover_approvals: its section of what waits for people
resolve     effects that may have happened, and a person's verdict on them
ownership   running actions of this boot that are not in its memory
retention   what was kept long enough
"""
