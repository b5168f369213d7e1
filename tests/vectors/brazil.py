from base import *

PROVIDERS = {}
