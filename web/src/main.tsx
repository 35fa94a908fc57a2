import {render} from 'preact'
import {App} from './app'
import {follow} from './node/live'
import {listen} from './route'

listen()
void follow()
render(<App />, document.getElementById('page')!)
