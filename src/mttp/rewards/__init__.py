"""
Reward specs: what is paid, by which rule, at which version.

mttp supplies no reward functions; a spec names, versions, checks, composes and tests those of the user.
"""
