# Sourced: the browser that tests of the dashboard drive, found or installed. Needs `apt_install` of private-brokers.sh.
#
#   find_browser    chromium, and chromedriver, through which it is driven

find_browser() {
    local missing=()
    command -v chromium >/dev/null || missing+=(chromium)
    command -v chromedriver >/dev/null || missing+=(chromium-driver)
    ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
}
